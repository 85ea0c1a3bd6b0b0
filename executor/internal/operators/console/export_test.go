package console

// FormOperations returns the operations of all forms, by the path to which the form is posted.
func FormOperations() map[string]string {
	operations := map[string]string{}
	for path, f := range (&Console{}).forms() {
		operations[path] = f.operation
	}
	return operations
}
