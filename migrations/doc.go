// Package migrations holds the database's schema as numbered goose files and
// applies them.
//
// A file is never changed once it was released: a change is a new file,
// NNNN_words.sql, with comments on what is not plain from the names and a name
// on every CHECK. Write files so that the release before still runs on the new
// schema, because replicas of two releases run side by side during an update:
// a release that meets a newer schema goes on. What takes something away comes a
// release after the code stopped using it, and raises schema_floor, so that a
// release that still uses it says so and does not start.
package migrations
