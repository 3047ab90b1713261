"""Generated from proto/program.proto by python/generate_proto.sh."""
