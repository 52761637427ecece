package storetest

import "testing"

// Run runs the suite; open gives an empty store and cleans up after its test.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"LoadOfNothing", loadOfNothing},
		{"AppendAndRead", appendAndRead},
		{"ReadInPieces", readInPieces},
		{"ChainHolds", chainHolds},
		{"StaleVersionRefused", staleVersionRefused},
		{"CreateRace", createRace},
		{"AbsentStreamRefused", absentStreamRefused},
		{"ClosedStreamRefused", closedStreamRefused},
		{"ClockRefused", clockRefused},
		{"ForeignPrevHashRefused", foreignPrevHashRefused},
		{"CommandTakesEffectOnce", commandTakesEffectOnce},
		{"CommandOnTwoReplicas", commandOnTwoReplicas},
		{"CommandOnTwoStreams", commandOnTwoStreams},
		{"QuickPairs", quickPairs},
		{"InvalidAppends", invalidAppends},
		{"Limits", limits},
		{"Texts", texts},
		{"Rows", rows},
		{"ForeignRowNeverOverwritten", foreignRow},
		{"RefusedAppendLeavesNothing", refusedLeavesNothing},
		{"FailedNotPersisted", failedNotPersisted},
		{"FailedButPersisted", failedButPersisted},
		{"FeedGaplessAndOrdered", feedGapless},
		{"FeedCursors", feedCursors},
		{"CancelledCallers", cancelledCallers},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}
