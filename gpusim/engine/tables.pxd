# C types for tables.py in the compiled core.
cdef long long RESOURCES
cdef double _NEVER
