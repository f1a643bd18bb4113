//! Named data sources of `db_query`: read-only sessions of other databases.
