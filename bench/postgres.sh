# A PostgreSQL primary with two standbys on loopback, from Debian's packages, as an operator would set them up who
# wants each commit on two disks. Sourced by scripts/bench-peers. The server refuses to run as root; then the user that
# the package made runs it.

postgres_bin=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
mapfile -t postgres_targets < <(three 60)
postgres_port=$((port + 61))
postgres_home=$work/postgres

as_postgres() {
  if [ "$(id -u)" = 0 ]; then (cd / && runuser -u postgres -- "$@"); else "$@"; fi
}
sql() { as_postgres "$postgres_bin/psql" -X -q -A -t -h 127.0.0.1 -p "$postgres_port" -U postgres -d postgres -c "$1"; }
control() { as_postgres "$postgres_bin/pg_ctl" -D "$postgres_home/$1" -l "$postgres_home/$1.log" "${@:2}" >/dev/null; }

# initdb's defaults fit the smallest machine; these fit one with gigabytes to spare. A write waits for one of the two
# standbys to have synced it, and for nothing more: a majority of three, as with the others.
postgres_conf() {
  cat <<CONF
port = $postgres_port
listen_addresses = '127.0.0.1'
unix_socket_directories = '$postgres_home'
max_connections = 300
shared_buffers = 1GB
effective_cache_size = 4GB
wal_buffers = 16MB
min_wal_size = 1GB
max_wal_size = 8GB
checkpoint_timeout = 15min
checkpoint_completion_target = 0.9
synchronous_commit = on
synchronous_standby_names = 'ANY 1 (s1, s2)'
fsync = on
full_page_writes = on
CONF
}

standbys_stream() { [ "$(sql "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'quorum'")" = 2 ]; }

start_postgres() {
  local n
  must_be_free "${postgres_targets[@]}"
  # The work directory is for its owner only; postgres must reach its own below it.
  chmod 711 "$work"
  mkdir -p -m 700 "$postgres_home"
  [ "$(id -u)" != 0 ] || chown postgres: "$postgres_home"
  as_postgres "$postgres_bin/initdb" -D "$postgres_home/primary" -U postgres -A trust -E UTF8 --locale=C >"$work/initdb.log" 2>&1
  postgres_conf | as_postgres tee -a "$postgres_home/primary/postgresql.conf" >/dev/null
  control primary start
  for n in 1 2; do
    as_postgres "$postgres_bin/pg_basebackup" -D "$postgres_home/s$n" -R -X stream -c fast -C -S "s$n" \
      -d "host=127.0.0.1 port=$postgres_port user=postgres application_name=s$n" 2>"$work/basebackup.log"
    printf 'port = %d\n' $((postgres_port + n)) | as_postgres tee -a "$postgres_home/s$n/postgresql.conf" >/dev/null
    control "s$n" start
  done
  wait_for standbys_stream
  sql 'CREATE TABLE operations (key text PRIMARY KEY, value bytea NOT NULL)'
}

# The data is thrown away, so it is not made ready for another start.
stop_postgres() {
  local name
  for name in s1 s2 primary; do
    [ ! -f "$postgres_home/$name/postmaster.pid" ] || control "$name" stop -m immediate || true
  done
  rm -rf "$postgres_home"
}

created_postgres() { sql 'SELECT count(*) FROM operations'; }

# A session reports its syncs when it ends at the latest, and the sessions of a load end with it.
syncs_postgres() {
  sql 'SELECT wal_sync FROM pg_stat_wal'
  printf -- '-\n-\n'
}

settings_postgres() {
  local name value
  while IFS='|' read -r name value; do setting PostgreSQL "$name" "$value"; done < <(
    sql "SELECT name, current_setting(name) FROM pg_settings WHERE name IN ('max_connections', 'shared_buffers', \
      'effective_cache_size', 'wal_buffers', 'min_wal_size', 'max_wal_size', 'checkpoint_timeout', 'checkpoint_completion_target', \
      'synchronous_commit', 'synchronous_standby_names', 'fsync', 'full_page_writes', 'wal_sync_method', 'wal_level', 'commit_delay', \
      'data_checksums') ORDER BY name")
  setting PostgreSQL table '`operations (key text PRIMARY KEY, value bytea NOT NULL)`'
}
