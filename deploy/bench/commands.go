package bench

import (
	"context"
	"io"

	"github.com/alecthomas/kong"
)

// Commands holds the program's commands with their flags. Each command is one measurement.
type Commands struct {
	Speed      Speed          `cmd:"" default:"withargs" help:"How many requests, how fast, and what they cost, against the bare combination of the parts. What is measured when nothing is said."`
	Recording  Recording      `cmd:"" help:"From the answer to the record, at a constant rate."`
	Neighbours Neighbours     `cmd:"" help:"What calm workflows notice of one that is flooded."`
	Remembered DeliveryIDCost `cmd:"" help:"What remembered delivery IDs cost a NATS server: memory, and time to start."`
	Isolation  Isolation      `cmd:"" help:"What a queue with its own stream notices of another whose stream is full, whose server is frozen, or whose consumer lags."`
	Scale      Scale          `cmd:"" help:"What streams on three NATS servers add to one, when the CPU of each server is bounded; as root on Linux."`
	Tail       TailLatency    `cmd:"" help:"Where the slowest requests wait, at a constant rate, by execution traces."`

	chosenCommand string
}

// AfterApply records the chosen command. Kong calls it after parsing the flags.
func (c *Commands) AfterApply(k *kong.Context) error {
	c.chosenCommand = k.Command()
	return nil
}

// Run runs the chosen measurement and writes its progress and tables to out.
func (c *Commands) Run(ctx context.Context, out io.Writer) error {
	switch c.chosenCommand {
	case "recording":
		c.Recording.Out = out
		return c.Recording.Run(ctx)
	case "neighbours":
		c.Neighbours.Out = out
		return c.Neighbours.Run(ctx)
	case "remembered":
		c.Remembered.Out = out
		return c.Remembered.Run(ctx)
	case "isolation":
		c.Isolation.Out = out
		return c.Isolation.Run(ctx)
	case "scale":
		c.Scale.Out = out
		return c.Scale.Run(ctx)
	case "tail":
		c.Tail.Out = out
		return c.Tail.Run(ctx)
	default:
		c.Speed.Out = out
		return RunSpeed(ctx, c.Speed)
	}
}
