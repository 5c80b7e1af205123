# Sourced from the root of a clone: leaves in CACHE the folder where the clones of this user keep
# what they downloaded. Without a writable one (also without HOME), it is .deps/cache of this clone.
CACHE=${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}/megatron
{ mkdir -p "$CACHE" && [ -w "$CACHE" ]; } 2>/dev/null || {
  CACHE=$PWD/.deps/cache
  mkdir -p "$CACHE"
}
