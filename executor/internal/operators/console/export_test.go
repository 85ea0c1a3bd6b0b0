package console

import "maps"

// Conflict is a posted form with one field. It lets tests simulate that the operator and somebody
// else have both changed the field.
type Conflict struct{ p postedForm }

// NewConflict returns a form whose field had the value "shown", to which the operator has given the
// value "mine".
func NewConflict() *Conflict {
	return &Conflict{postedForm{
		form:   &form{settings: []setting{{"name", []string{"name"}, quoted}}},
		values: map[string]string{"name": "mine", "shown.name": "shown"},
	}}
}

// Check checks the form as if somebody else had meanwhile set the field to theirs. It returns an
// error if this conflicts with the operator's change.
func (c *Conflict) Check(theirs string) error {
	return c.p.checkEditConflict(map[string]string{"name": theirs})
}

// Fail records err as the failure of the form, and returns the values with which the page then
// shows the form again.
func (c *Conflict) Fail(err error) map[string]string {
	c.p.recordFailure(err)
	return maps.Clone(c.p.values)
}

// FormOperations returns the operation of each form, keyed by the path to which the form is posted.
func FormOperations() map[string]string {
	operations := map[string]string{}
	for path, f := range (&Console{}).forms() {
		operations[path] = f.operation
	}
	return operations
}
