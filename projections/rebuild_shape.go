package projections

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// What CREATE TABLE … LIKE leaves out: storage parameters, the table's comment
// and what the operator granted. $1 is the live table, $2 the copy.
const shapeSQL = `
SELECT format('ALTER TABLE %I SET (%s)', $2::text, array_to_string(c.reloptions, ', '))
FROM pg_class c WHERE c.oid = to_regclass($1) AND c.reloptions IS NOT NULL
UNION ALL
SELECT format('COMMENT ON TABLE %I IS %L', $2::text, d.text)
FROM obj_description(to_regclass($1), 'pg_class') AS d(text) WHERE d.text IS NOT NULL
UNION ALL
SELECT format('GRANT %s ON %I TO %s%s', a.privilege_type, $2::text,
              CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
              CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = to_regclass($1) AND a.grantee <> c.relowner`

// The names of the live table's indexes, for the copy's, found by what they index:
// a migration that names an index must find it after a rebuild too.
const indexNamesSQL = `
WITH x AS (
    SELECT i.indrelid, c.relname, ROW((SELECT array_agg(pg_get_indexdef(i.indexrelid, k, true) ORDER BY k) FROM generate_series(1, i.indnatts) k),
        i.indclass::text, i.indoption::text, i.indisunique, coalesce(pg_get_expr(i.indpred, i.indrelid), ''), c.relam)::text AS what
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid)
SELECT format('ALTER INDEX %I RENAME TO %I', s.relname, l.relname)
FROM x l JOIN x s USING (what) WHERE l.indrelid = to_regclass($1) AND s.indrelid = to_regclass($2)`

// statements returns what a query composes of the two tables' names.
func (b *rebuild) statements(ctx context.Context, q querier, sql string) ([]string, error) {
	rows, err := q.Query(ctx, sql, b.table.Name, b.shadow)
	if err != nil {
		return nil, readError("the shape of "+b.table.Name, err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, readError("the shape of "+b.table.Name, err)
	}
	return out, nil
}

func execAll(ctx context.Context, x execer, statements []string) error {
	for _, s := range statements {
		if _, err := x.Exec(ctx, s); err != nil {
			return readError("run "+s, err)
		}
	}
	return nil
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}
