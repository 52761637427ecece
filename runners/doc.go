// Package runners is the catalogue of actions: what may stand in a JobSpec's
// action, the schema of its parameters, and what the service must know about
// it before a runner does. The folders beneath it hold the executors, one per
// runner type; they never import one another.
//
// What may be touched: a new action is one entry in catalogue.go and one schema
// in its executor's schemas folder. A parameter that was accepted once stays
// accepted. The package has no clock, network or database.
package runners
