package console

import "maps"

// Conflict is a posted form with one field. With it, tests simulate that the operator and somebody
// else have both changed this field.
type Conflict struct{ p postedForm }

// NewConflict returns a form whose field had the value "shown" on the page, and for which the
// operator has posted the value "mine".
func NewConflict() *Conflict {
	return &Conflict{postedForm{
		form:   &form{settings: []setting{{"name", []string{"name"}, quoteValues}}},
		values: map[string]string{"name": "mine", "shown.name": "shown"},
	}}
}

// Check checks the form for a conflict, as if somebody else had set the field to the value theirs
// after the page was loaded. It returns an error if theirs conflicts with the operator's change.
func (c *Conflict) Check(theirs string) error {
	return c.p.checkEditConflict(map[string]string{"name": theirs})
}

// Fail records err as the form's failure. It returns the field values that the page would then show
// in the form.
func (c *Conflict) Fail(err error) map[string]string {
	c.p.recordFailure(err)
	return maps.Clone(c.p.values)
}

// FormOperations returns the name of the operation of each form, keyed by the path to which the
// form is posted.
func FormOperations() map[string]string {
	operations := map[string]string{}
	for path, f := range (&Console{}).forms() {
		operations[path] = f.operation
	}
	return operations
}
