package projections

// RebuildBy is Rebuild in pieces of about so many rows and pages of so many events.
var RebuildBy = rebuildBy
