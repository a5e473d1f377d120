# Install rules, pkg-config and CMake package files; filled in by packaging.
