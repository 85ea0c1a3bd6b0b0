package consistency_test

import (
	"os"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

func TestMain(m *testing.M) { os.Exit(natstest.Main(m)) }
