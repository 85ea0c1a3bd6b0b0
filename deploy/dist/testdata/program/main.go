// Command program replaces all programs of a release in tests in which their content does not
// matter.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Println(os.Args[1:]) }
