/* Put before libtorch: what one of another version, 2.15, says of itself. */
unsigned long long aoti_torch_abi_version(void);
unsigned long long aoti_torch_abi_version(void) { return (2ULL << 56) | (15ULL << 48); }
