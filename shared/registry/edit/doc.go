// Package edit changes the registry: accounts, workflows, tokens and plans. The executor, the
// command line tool's backup and restore commands, and tests import it; an ingress never does.
//
// A method of an Editor returns once its change is in force at every process: see package
// consistency. It checks a change against a RegistryIndex, which holds the registry's records in
// memory. The index of a process that was frozen or disconnected from NATS may be stale. So
// before a method refuses a change, it makes sure that the index is current, and checks again.
package edit
