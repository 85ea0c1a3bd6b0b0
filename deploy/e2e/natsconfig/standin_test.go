package natsconfig

import (
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nkeys"
)

// nk stands in for the program nk. It implements only what the scripts that generate keys need: "nk
// -gen user" prints a new key, and "nk -inkey FILE -pubout" prints the public key of the key in
// FILE.
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
