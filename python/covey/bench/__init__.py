"""What Covey takes of machines and networks, measured: kernels, protocol primitives, models of the zoo.

Every figure comes from ordinary sessions of party processes over mutual TLS. `covey bench` prints them.
"""
