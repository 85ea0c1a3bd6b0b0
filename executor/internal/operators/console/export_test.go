package console

import "maps"

// Conflict is a form with one field, which the operator and somebody else have changed.
type Conflict struct{ p postedForm }

// NewConflict returns a form whose field had the value "shown", to which the operator has given the
// value "mine".
func NewConflict() *Conflict {
	return &Conflict{postedForm{
		form:   &form{settings: []setting{{"name", []string{"name"}, quoted}}},
		values: map[string]string{"name": "mine", "shown.name": "shown"},
	}}
}

// Check returns the form's error if somebody else has given the field the value theirs.
func (c *Conflict) Check(theirs string) error {
	return c.p.checkEditConflict(map[string]string{"name": theirs})
}

// Fail makes the form fail, and returns the values with which the page shows it again.
func (c *Conflict) Fail(err error) map[string]string {
	c.p.recordFailure(err)
	return maps.Clone(c.p.values)
}

// FormOperations returns the operations of all forms, by the path to which the form is posted.
func FormOperations() map[string]string {
	operations := map[string]string{}
	for path, f := range (&Console{}).forms() {
		operations[path] = f.operation
	}
	return operations
}
