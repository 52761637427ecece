// Package decide is how executors ask policy again: with exactly the bundle that
// the offer named, on the task as the dispatcher knew it, and with a fact of the
// executor protocol for each answer.
//
// What is asked, and what a refusal does, is the executor's own.
package decide
