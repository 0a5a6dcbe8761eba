#!/bin/sh
# Creates a database and its owner for each service, at the first start of the server.
set -eu

as_owner() { psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --username postgres --dbname postgres "$@"; }

as_owner --command 'REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC'
for name in $(ls /credentials); do
  [ "$name" != postgres ] || continue
  as_owner --set name="$name" --set password="$(cat "/credentials/$name")" <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
done
