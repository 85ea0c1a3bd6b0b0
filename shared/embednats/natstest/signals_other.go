//go:build !unix

package natstest

import "errors"

func pause(*process) error { return errors.New("this needs a Unix system") }

func resume(*process) error { return nil }
