package cli

import (
	"cmp"
	"strconv"
	"strings"
)

type adminVersionsCmd struct{}

func (*adminVersionsCmd) Run(s *session) error {
	found, err := s.client.Members(s.ctx)
	if err != nil {
		return err
	}
	return s.printResponse(func() error {
		rows := [][]string{{"ROLE", "INSTANCE", "VERSION", "TABLES", "KEYS"}}
		for _, m := range found.Items {
			tables := "–"
			if m.Schema > 0 {
				tables = strconv.FormatInt(m.Schema, 10)
			}
			rows = append(rows, []string{
				m.Role, m.Instance, m.Version, tables, cmp.Or(strings.Join(m.KeyIDs, " "), "–"),
			})
		}
		if err := s.printRows(rows); err != nil {
			return err
		}
		if found.Database > 0 {
			s.printNote("The database's tables have version %d.", found.Database)
		}
		return nil
	})
}
