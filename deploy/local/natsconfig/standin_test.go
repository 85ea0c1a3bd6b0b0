package natsconfig

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// natsRequest stands in for `nats request --raw --timeout 5s SUBJECT BODY`, the one call that
// setup.sh makes. Like the program, it takes the rest from the environment.
func natsRequest(args []string) error {
	if len(args) != 6 || args[0] != "request" || args[1] != "--raw" || args[2] != "--timeout" {
		return fmt.Errorf("unexpected: nats %q", args)
	}
	timeout, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	credentials, err := nats.NkeyOptionFromSeed(os.Getenv("NATS_NKEY"))
	if err != nil {
		return err
	}
	nc, err := nats.Connect(os.Getenv("NATS_URL"), credentials, nats.RootCAs(os.Getenv("NATS_CA")))
	if err != nil {
		return err
	}
	defer nc.Close()
	answer, err := nc.Request(args[4], []byte(args[5]), timeout)
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(answer.Data))
	return err
}

// nk stands in for the two calls of nk that make-secrets.sh makes.
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
