package report

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"
)

// periodicSender sends counts at a fixed interval until it is stopped.
type periodicSender struct {
	js   jetstream.JetStream
	log  logrus.FieldLogger
	what string // description of the counted items, for the log
	// take returns the message with the counts since the last call, or nil if there are none.
	take func() (*nats.Msg, error)

	pending *nats.Msg // an unconfirmed report; it is resent unchanged, so that it counts only once
	stop    chan struct{}
	done    chan struct{}
}

func startSender(
	js jetstream.JetStream, log logrus.FieldLogger, what string, every time.Duration,
	take func() (*nats.Msg, error),
) *periodicSender {
	s := &periodicSender{
		js:   js,
		log:  log,
		what: what,
		take: take,
		stop: make(chan struct{}),
		done: make(chan struct{}),
	}
	go s.run(every)
	return s
}

// Stop sends the last counts, if the stream accepts them, and waits until the sender has stopped.
func (s *periodicSender) Stop() {
	close(s.stop)
	<-s.done
}

func (s *periodicSender) run(every time.Duration) {
	defer close(s.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.send()
		case <-s.stop:
			s.send()
			return
		}
	}
}

func (s *periodicSender) send() {
	if s.pending == nil {
		msg, err := s.take()
		if err != nil {
			s.log.WithError(err).Errorf("a report of %s cannot be encoded", s.what)
			return
		}
		if s.pending = msg; msg == nil {
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := s.js.PublishMsg(ctx, s.pending); err != nil {
		s.log.WithError(err).Debugf("a report of %s was not taken; it is sent again", s.what)
		return
	}
	s.pending = nil
}
