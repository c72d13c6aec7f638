"""The checks: a module for each feature, a function for each rule of the spec, which its name states."""
