//! All rows of a database put aside, so that each of many breaks begins with a whole house.

/// Puts all rows aside.
pub const KEEP: &str = "CREATE SCHEMA kept; DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE format('CREATE TABLE kept.%1$I AS TABLE public.%1$I', name);
    END LOOP; END $$";

/// Brings them back. Alerts come last, since they point to letters.
pub const RESTORE: &str = "DO $$ DECLARE name text; BEGIN
    EXECUTE 'TRUNCATE ' || (SELECT string_agg('public.' || quote_ident(tablename), ', ')
                            FROM pg_tables WHERE schemaname = 'kept');
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'kept' ORDER BY tablename = 'alerts' LOOP
        EXECUTE format('INSERT INTO public.%1$I OVERRIDING SYSTEM VALUE TABLE kept.%1$I', name);
    END LOOP; END $$";
