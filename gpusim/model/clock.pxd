# C types for clock.py in the compiled core.
cdef long long ROOT_STEPS
@cython.locals(root=cython.double, _=cython.longlong)
cpdef double power_cycle(double power) noexcept
