package relational

import (
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// carryTells is how often the log says how far it has come.
const carryTells = 5 * time.Second

// Carry moves the records of the wide table of before to the narrow one, the oldest first, so that rows are in the order of
// time. next does so with some after a position, in one transaction, and returns them; none are left once it returns none.
// It can be ended at any moment and begun again: a record that is there already is left as it is.
func Carry(log logrus.FieldLogger, total int64, after store.Position, next func(after store.Position) ([]store.Record, error)) error {
	if total > 0 {
		log.WithField("records", total).Info("the records of the database are made narrow; it opens once that is done")
	}
	carried := 0
	begun, told := time.Now(), time.Now()
	for {
		records, err := next(after)
		if err != nil {
			return fmt.Errorf("carry records over: %w", err)
		}
		if len(records) == 0 {
			break
		}
		carried += len(records)
		last := records[len(records)-1]
		after = store.Position{AcceptedAt: last.AcceptedAt, ID: last.ID}
		if time.Since(told) >= carryTells {
			told = time.Now()
			log.WithFields(logrus.Fields{"carried": carried, "of": total}).Info("the records of the database are made narrow")
		}
	}
	if total > 0 {
		log.WithFields(logrus.Fields{"records": carried, "seconds": time.Since(begun).Seconds()}).Info("the records of the database are narrow")
	}
	return nil
}
