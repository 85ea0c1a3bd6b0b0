package soak

import "github.com/hookstart/hookstart/shared/embednats/freeport"

// ports reserves TCP ports until it is closed.
type ports struct{ held []*freeport.Port }

func (p *ports) reserve() (addr string, err error) {
	port, err := freeport.Reserve()
	if err != nil {
		return "", err
	}
	p.held = append(p.held, port)
	return port.Addr(), nil
}

func (p *ports) close() {
	for _, port := range p.held {
		port.Release()
	}
}
