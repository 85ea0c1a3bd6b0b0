// Command program stands for all programs of a release where their content does not matter.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Println(os.Args[1:]) }
