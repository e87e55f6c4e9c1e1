# C types for mixing.py in the compiled core.
cdef double LEAST_LEFT, LONGEST_BURST, CHAINED_WARPS, CHAINED_CYCLES
cdef long long ROUNDS
@cython.final
cdef class _Mixed:
    cdef double issue, taken, cycles, burst, meet, equal
    cdef bint blocks
    cdef list pipes, delays
@cython.locals(count=cython.longlong, i=cython.longlong, over=cython.double, shares=list, mixed=list, issue=list,
               together=list, waits=list)
cpdef list progress(uses)
cdef double _delay(use, mine) except? -1
@cython.locals(taken=cython.double, waits=cython.double, stretch=cython.double, pipe=cython.double, used=cython.double,
               met=list, issued=list, bursts=list, delays=list, others=list)
cdef double _stretch(long long i, _Mixed mine, list issue, list together, list shares) except? -1
@cython.locals(left=cython.double)
cdef double _longer(double used, double taken) noexcept
@cython.locals(met=list)
cdef list _path_waits(uses, list shares)
cdef list _totals(uses, list shares)
cdef list _products(list one, list other)
@cython.locals(count=cython.longlong)
cdef double _sum(list values) except? -1
