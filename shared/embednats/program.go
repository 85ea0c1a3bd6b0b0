package embednats

import (
	"flag"

	"github.com/nats-io/nats-server/v2/server"
)

// RunProgram behaves like the program nats-server with the given arguments, and returns when the
// server has shut down. It is for tools that run their own binary as a NATS server with a
// configuration file. Arguments that only print something, like --help, are not supported.
func RunProgram(args []string) error {
	options, err := server.ConfigureOptions(flag.NewFlagSet("nats-server", flag.ContinueOnError),
		args, nil, nil, nil)
	if err != nil {
		return err
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	if err := server.Run(s); err != nil {
		return err
	}
	s.WaitForShutdown()
	return nil
}
