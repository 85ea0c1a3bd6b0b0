package apiserver

import (
	"net/http"

	"github.com/hookstart/hookstart/executor/internal/operate"
)

// output is an answer with a body. Where there is an error, register takes that alone.
type output[T any] struct {
	Body T
}

func answered[T any](body T, err error) (*output[T], error) {
	return &output[T]{body}, err
}

// putOutput is the answer to a PUT, which says whether something was created.
type putOutput[T any] struct {
	Status int
	Body   T
}

func stored[T any](of operate.PutResult[T], err error) (*putOutput[T], error) {
	out := &putOutput[T]{http.StatusOK, of.Value}
	if of.Created {
		out.Status = http.StatusCreated
	}
	return out, err
}
