package cli

import (
	"errors"

	"github.com/hookstart/hookstart/executor/client/api"
)

type adminCheckURLCmd struct{}

func (*adminCheckURLCmd) Run(s *session) error {
	found, err := s.client.PublicURL(s.ctx)
	if err != nil {
		return err
	}
	if err := s.printResponse(func() error {
		return s.printRows([][]string{
			{"URL", found.URL},
			{"State", found.State},
			{"", found.Detail},
			{"Checked", agoAndExact(found.CheckedAt, s.now())},
		})
	}); err != nil {
		return err
	}
	if found.OnlyThisMachine {
		s.printNote("Senders on other machines cannot reach it: start the executor and the " +
			"ingress " +
			"with --public-url set to the address that they use.")
	}
	if found.State != api.PublicURLReached {
		return errors.New("the public URL does not lead to an ingress of this installation, as " +
			"far as the executor can tell")
	}
	return nil
}
