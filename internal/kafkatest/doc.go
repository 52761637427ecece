// Package kafkatest runs a real Apache Kafka for tests of this project: one KRaft
// node, broker and controller, as a process of its own on loopback. Its jars are
// fetched by `make peers-kafka` as test/peers/kafka pins them and live in the user's
// cache folder; a test that finds none fails and says so. A start takes some three
// seconds of a processor, so subtests share one broker where they can, each with
// topics of its own.
//
// What may be touched: nothing here knows the packages under test.
package kafkatest
