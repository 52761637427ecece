// Package deliverytest holds what tests of delivery share: it reads everything that
// a Kafka broker holds and compares it with the ledger's feed, it runs a receiver of
// callbacks that can be made to fail in many ways, and it compares what was pushed
// with what is pulled. It uses examples/consumer/ledger and
// examples/controlplane/receiver as the judges, which know no package of the service.
//
// What may be touched: nothing here asks the packages under test how things should
// be; where an event belongs and which endpoint wants a result is said here again.
package deliverytest
