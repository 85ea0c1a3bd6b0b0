// Command dist builds the files of a release from the checkout in the current directory.
//
// Usage: dist [flags] VERSION
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/hookstart/hookstart/deploy/dist"
)

func main() {
	out := flag.String("out", "dist", "folder that gets the files; what is in it is deleted before")
	nfpm := flag.String("nfpm", "nfpm", "the program nfpm, which makes packages")
	only := flag.String("platforms", "",
		"platforms like linux/amd64, comma-separated, that alone are made. Empty: all")
	key := flag.String("sign-with", "", "SSH key that signs SHA256SUMS. Empty: nothing is signed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr,
			"usage: dist [-out FOLDER] [-nfpm PROGRAM] [-platforms OS/ARCH,...] [-sign-with KEY] "+
				"VERSION, such as v0.1.0")
		os.Exit(2)
	}
	platforms := dist.Platforms()
	if *only != "" {
		platforms = nil
		for name := range strings.SplitSeq(*only, ",") {
			system, arch, _ := strings.Cut(name, "/")
			platforms = append(platforms, dist.Platform{OS: system, Arch: arch})
		}
	}
	if err := makeRelease(ctx, *out, flag.Arg(0), *nfpm, *key, platforms); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func makeRelease(
	ctx context.Context, out, version, nfpm, key string, platforms []dist.Platform,
) error {
	release, err := dist.New(ctx, ".", out, version, os.Stdout)
	if err != nil {
		return err
	}
	release.NFPM = nfpm
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	for _, platform := range platforms {
		if err := release.Compile(ctx, platform); err != nil {
			return err
		}
	}
	if err := release.Pack(ctx); err != nil {
		return err
	}
	if err := release.RemoveBinaries(); err != nil {
		return err
	}
	if key != "" {
		return release.Sign(ctx, key)
	}
	return nil
}
