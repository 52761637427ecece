// Package forwarder publishes every event of the feed to Kafka, through Watermill.
//
// One replica leads, under the row lease Lease. It reads the feed page by page,
// spreads the events over ordered lanes in memory (one key of one topic is always
// in the same lane), and hands them through a message.Subscriber of its own, a
// Watermill router and watermill-kafka to the broker. The checkpoint is the place
// in the feed up to which everything was published or parked: it never passes an
// event that is still under way. No transaction is open while the broker is slow,
// and what stands in memory is bounded in events and bytes.
//
// What the package promises: every event at least once, and of the events of one
// key in one topic the first copy of each in feed order. A lane has one record
// under way at a time, so neither a second leader, nor a new producer, nor a late
// answer can bring an event to consumers before the one that precedes it.
//
// An event that the broker refuses for good parks its key (parking.go); the later
// events of that key are passed over and read again from the feed once somebody
// asks for them (retry.go). Everything else that fails is tried again for ever and
// shows in Status.
//
// What may be touched: Kafka, in session.go, topics.go and kafka.go alone; the
// database only through the interfaces of config.go.
package forwarder
