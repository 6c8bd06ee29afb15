// An S3 server for tests: versitygw, without the parts of its own program that reach for clouds and message brokers,
// which take most of the time of a build. It keeps its files in a directory and ends with its standard input.
//
//	s3-server DIRECTORY ADDRESS   the credential is in S3_SERVER_ACCESS and S3_SERVER_SECRET
package main

import (
	"context"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: s3-server DIRECTORY ADDRESS")
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func serve(directory, address string) error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
		os.Exit(0)
	}()
	content := filepath.Join(directory, "content")
	options := posix.PosixOpts{}
	var attributes meta.MetadataStorer = meta.XattrMeta{}
	if err := os.MkdirAll(content, 0o700); err != nil {
		return err
	}
	if (meta.XattrMeta{}).Test(content) != nil {
		// A file system without extended attributes.
		options.SideCarDir = filepath.Join(directory, "attributes")
		if err := os.MkdirAll(options.SideCarDir, 0o700); err != nil {
			return err
		}
		sidecar, err := meta.NewSideCar(options.SideCarDir)
		if err != nil {
			return err
		}
		attributes = sidecar
	}
	backend, err := posix.New(content, attributes, options)
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
		RootUserAccess:    os.Getenv("S3_SERVER_ACCESS"),
		RootUserSecret:    os.Getenv("S3_SERVER_SECRET"),
		Region:            "test-region-1",
		Ports:             []string{address},
		MaxConnections:    1000,
		MaxRequests:       1000,
		MultipartMaxParts: 10000,
		KeepAlive:         true,
		Quiet:             true,
	})
}
