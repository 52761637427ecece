// Package underfire holds tests only: whole agents, in processes of their own as
// they are in production, with executors that mean harm, disks that are full,
// floods of log, and kill -9. The service is one in memory that stores digests
// instead of logs, so that its own memory says nothing.
//
// The flags -underfire.flood (MiB of log) and -underfire.kills (crashes of an
// agent) make the runs longer; by default all of it takes some seconds.
package underfire
