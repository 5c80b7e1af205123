extern "C" int megatron_engine_main() { return 0; }
