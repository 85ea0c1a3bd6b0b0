// Command program replaces all programs of a release in tests in which their content does not
// matter. It is small, because the tests compress it often.
package main

import "syscall"

func main() { _, _ = syscall.Write(1, []byte("a stand-in\n")) }
