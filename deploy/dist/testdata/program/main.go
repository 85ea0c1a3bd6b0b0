// Command program stands in for all programs of a release in tests that do not depend on their
// content. It is small, because the tests compress it often.
package main

import "syscall"

func main() { _, _ = syscall.Write(1, []byte("a stand-in\n")) }
