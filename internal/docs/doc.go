// Package docs holds the test that keeps the pages true: links, environment
// variables, flags, metrics and folders that they name are there. It has no other
// content.
package docs
