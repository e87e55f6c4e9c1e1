# C types for memory.py in the compiled core.
@cython.locals(own_dram=cython.double, own_l2=cython.double, hits=cython.double, d=cython.double, t=cython.double,
               inner=cython.double, most=cython.double, waited=cython.double, early=cython.double, late=cython.double)
cpdef double memory_slowdown(double dram, double l2, double[::1] own, double cycle=*, long long at=*) noexcept
cdef double MISS_LATENCY, CODE_LATENCY, STREAM_QUEUE, HIT_QUEUE, HIT_US, IDLE_READ_US
cdef long long LAUNCH_READS
cpdef double lost_share(double touched) noexcept
@cython.locals(held=cython.double)
cpdef double lost_to_others(double own, double others) noexcept
@cython.locals(more=cython.double)
cpdef double dram_queue(double busy, double under_way) noexcept
cpdef double launch_wait_us(double dram, double l2, double queue) noexcept
@cython.locals(share=cython.double, serial=cython.double, recorded=cython.double, misses=cython.double,
               own_queue=cython.double, read=cython.double, own_read=cython.double, before=cython.double,
               now=cython.double, longer=cython.double, ahead=cython.double, own_ahead=cython.double,
               late=cython.double)
cpdef double wait_slowdown(double dram, double l2, double own_dram, double[::1] wait, double code_lost=*,
                          long long at=*, double queue=*) noexcept
@cython.locals(by_dram=cython.double, by_l2=cython.double, of_dram=cython.double, of_l2=cython.double)
cpdef long long memory_that_binds(double whole, double largest, double dram, double l2, double[::1] own,
                                  long long at=*) noexcept
