// Command bench measures the service beside its limits and peers: bare INSERTs
// and COPY on the same PostgreSQL, a plain PUT into the same object storage, River,
// a job queue on PostgreSQL, and a bare producer and Watermill's stock path to the
// same Kafka broker.
//
// It is no test and judges nothing: every figure stands beside what it is
// compared with, both taken in turns in one run on one server, so that a busy
// machine hurts both alike. Only the ratios are worth keeping.
//
// It is a module of its own so that River stays out of the product. Each part is
// one file with a function that measures; harness.go has what they share. The
// program starts its PostgreSQL, object storage and Kafka itself, on loopback and in
// temporary folders, and ends them.
package main
