package relational

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Size implements store.Store. Free is -1; a driver that knows the free disk space sets it.
func (s *Store) Size(ctx context.Context) (store.Size, error) {
	size := store.Size{Driver: s.dialect.Name, Free: -1}
	err := s.db.Read(ctx, "size", func(row Row) error {
		return row.Scan(&size.Bytes, &size.Reusable, &size.Records, timeField{&size.Oldest})
	}, s.dialect.Size)
	return size, err
}
