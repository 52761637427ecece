// Package pgembed runs a private PostgreSQL server as a child process: the
// database of the embedded default, of the demo and of the tests.
//
// The server listens on 127.0.0.1 only, on a free port, with a random
// password. It is told to end by the kernel when its parent dies, however the
// parent dies. As root it runs as an unprivileged user, because PostgreSQL
// refuses root; its directory is then given to that user.
//
// Installed binaries are used if there are any; otherwise they are downloaded
// once into a cache outside every checkout. The package speaks to the server
// by signals, its log and its files only; it opens no connection and knows no
// schema. It needs Linux.
package pgembed
