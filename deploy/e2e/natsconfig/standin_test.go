package natsconfig

import (
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nkeys"
)

// nk implements the two invocations of the program nk by make-secrets.sh.
func nk(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "-gen" && args[1] == "user":
		pair, err := nkeys.CreateUser()
		if err != nil {
			return err
		}
		seed, err := pair.Seed()
		fmt.Println(string(seed))
		return err
	case len(args) == 3 && args[0] == "-inkey" && args[2] == "-pubout":
		content, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		pair, err := nkeys.ParseDecoratedNKey(content)
		if err != nil {
			return err
		}
		public, err := pair.PublicKey()
		fmt.Println(public)
		return err
	}
	return errors.New("unexpected arguments")
}
