package bench

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/hookstart/hookstart/deploy/lab/terminal"
)

// workspace holds the processes of a measurement and the folder for their data.
type workspace struct {
	folder   string
	progress *terminal.ProgressLine
	systems  []*system
}

// newWorkspace returns a workspace with a new temporary folder and no processes.
func newWorkspace(out io.Writer) (*workspace, error) {
	folder, err := os.MkdirTemp("", "hookstart-bench-")
	return &workspace{folder: folder, progress: terminal.NewProgressLine(out)}, err
}

// startSystem starts a system and adds it to the workspace. Even if startSystem returns an error, a
// later call of close ends the processes that it has started.
func (p *workspace) startSystem(
	ctx context.Context, install installer, b *launcher,
) (*system, error) {
	p.progress.Show("starting %s", b.name)
	installed, err := install(ctx, b)
	if installed != nil {
		p.systems = append(p.systems, installed)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", b.name, err)
	}
	return installed, nil
}

// close ends the processes and deletes their data.
func (p *workspace) close() error {
	p.progress.Done()
	p.closeSystems()
	return os.RemoveAll(p.folder)
}

// closeSystems ends the processes of all systems. It keeps the folder with their data.
func (p *workspace) closeSystems() {
	for _, system := range p.systems {
		system.close()
	}
	p.systems = nil
}
