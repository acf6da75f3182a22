@ The kernels of `kernel.rs`, which says what they may touch.
@ Sums are s0-s15, row by row. Four steps of k per turn, because a turn costs two instructions.

.syntax unified
.thumb
.fpu fpv4-sp-d16
.section .text.fairtier_kernel,"ax",%progbits
@ Sixteen multiply-accumulates of a column of a and a row of b.
.macro FT_SIXTEEN a0, a1, a2, a3, b0, b1, b2, b3
    vfma.f32 s0, \a0, \b0
    vfma.f32 s1, \a0, \b1
    vfma.f32 s2, \a0, \b2
    vfma.f32 s3, \a0, \b3
    vfma.f32 s4, \a1, \b0
    vfma.f32 s5, \a1, \b1
    vfma.f32 s6, \a1, \b2
    vfma.f32 s7, \a1, \b3
    vfma.f32 s8, \a2, \b0
    vfma.f32 s9, \a2, \b1
    vfma.f32 s10, \a2, \b2
    vfma.f32 s11, \a2, \b3
    vfma.f32 s12, \a3, \b0
    vfma.f32 s13, \a3, \b1
    vfma.f32 s14, \a3, \b2
    vfma.f32 s15, \a3, \b3
.endm
@ Two steps of each kind.
.macro FT_DOTS_PAIR
    vldmia r0!, {s16, s17}
    vldmia r1!, {s18, s19}
    vldmia r2!, {s20, s21}
    vldmia r3!, {s22, s23}
    vldmia r4!, {s24, s25}
    vldmia r5!, {s26, s27}
    vldmia r6!, {s28, s29}
    vldmia r7!, {s30, s31}
    FT_SIXTEEN s16, s18, s20, s22, s24, s26, s28, s30
    FT_SIXTEEN s17, s19, s21, s23, s25, s27, s29, s31
.endm
.macro FT_ROWS_PAIR
    vldmia r0!, {s16, s17}
    vldmia r1!, {s18, s19}
    vldmia r2!, {s20, s21}
    vldmia r3!, {s22, s23}
    vldmia r4, {s24-s27}
    add r4, r4, r9
    vldmia r4, {s28-s31}
    add r4, r4, r9
    FT_SIXTEEN s16, s18, s20, s22, s24, s25, s26, s27
    FT_SIXTEEN s17, s19, s21, s23, s28, s29, s30, s31
.endm
.macro FT_OUTER_PAIR
    vldmia r0, {s16-s19}
    add r0, r0, r8
    vldmia r4, {s24-s27}
    add r4, r4, r9
    vldmia r0, {s20-s23}
    add r0, r0, r8
    vldmia r4, {s28-s31}
    add r4, r4, r9
    FT_SIXTEEN s16, s17, s18, s19, s24, s25, s26, s27
    FT_SIXTEEN s20, s21, s22, s23, s28, s29, s30, s31
.endm
@ Saves registers; r12 holds the job, lr walks along c. From 7 on once per tile: zeroes the sums.
.macro FT_BEGIN
    push {r4-r11, lr}
    sub sp, sp, #4
    vpush {s16-s31}
    mov r12, r0
    ldr lr, [r12, #20]
7:
    adr r1, fairtier_zeros
    vldmia r1, {s0-s15}
    ldrd r0, r8, [r12, #0]
    ldrd r4, r9, [r12, #8]
    ldr r10, [r12, #16]
.endm
@ One row of c: c + factor * sum. `vmla` rounds twice, unlike `vfma`.
.macro FT_ADD_ROW a, b, c, d
    vldmia r0, {s16-s19}
    vmla.f32 s16, \a, s20
    vmla.f32 s17, \b, s20
    vmla.f32 s18, \c, s20
    vmla.f32 s19, \d, s20
    vstmia r0, {s16-s19}
    add r0, r0, r1
.endm
@ Stores a tile, goes on to the next, and returns after the last.
.macro FT_END
    mov r0, lr
    ldrd r1, r2, [r12, #24]
    cmp r2, #0
    beq 8f
    vldr s20, [r12, #32]
    FT_ADD_ROW s0, s1, s2, s3
    FT_ADD_ROW s4, s5, s6, s7
    FT_ADD_ROW s8, s9, s10, s11
    FT_ADD_ROW s12, s13, s14, s15
    b 9f
8:
    vstmia r0, {s0-s3}
    add r0, r0, r1
    vstmia r0, {s4-s7}
    add r0, r0, r1
    vstmia r0, {s8-s11}
    add r0, r0, r1
    vstmia r0, {s12-s15}
9:
    ldrd r3, r4, [r12, #36]
    subs r4, r4, #1
    str r4, [r12, #40]
    ldr r0, [r12, #8]
    add r0, r0, r3
    str r0, [r12, #8]
    add lr, lr, #16
    bne 7b
    vpop {s16-s31}
    add sp, sp, #4
    pop {r4-r11, pc}
.endm
.balign 4
fairtier_zeros:
.zero 64
@ Both along k: four pointers each.
.balign 4
.global fairtier_tiles_dots
.type fairtier_tiles_dots, %function
.thumb_func
fairtier_tiles_dots:
    FT_BEGIN
    add r1, r0, r8
    add r2, r1, r8
    add r3, r2, r8
    add r5, r4, r9
    add r6, r5, r9
    add r7, r6, r9
    lsrs r11, r10, #2
    beq 2f
1:
    FT_DOTS_PAIR
    FT_DOTS_PAIR
    subs r11, r11, #1
    bne 1b
2:
    tst r10, #2
    beq 3f
    FT_DOTS_PAIR
3:
    tst r10, #1
    beq 4f
    vldr s16, [r0]
    vldr s18, [r1]
    vldr s20, [r2]
    vldr s22, [r3]
    vldr s24, [r4]
    vldr s26, [r5]
    vldr s28, [r6]
    vldr s30, [r7]
    FT_SIXTEEN s16, s18, s20, s22, s24, s26, s28, s30
4:
    FT_END
@ a along k, b along its columns.
.balign 4
.global fairtier_tiles_rows
.type fairtier_tiles_rows, %function
.thumb_func
fairtier_tiles_rows:
    FT_BEGIN
    add r1, r0, r8
    add r2, r1, r8
    add r3, r2, r8
    lsrs r11, r10, #2
    beq 2f
1:
    FT_ROWS_PAIR
    FT_ROWS_PAIR
    subs r11, r11, #1
    bne 1b
2:
    tst r10, #2
    beq 3f
    FT_ROWS_PAIR
3:
    tst r10, #1
    beq 4f
    vldr s16, [r0]
    vldr s18, [r1]
    vldr s20, [r2]
    vldr s22, [r3]
    vldmia r4, {s24-s27}
    FT_SIXTEEN s16, s18, s20, s22, s24, s25, s26, s27
4:
    FT_END
@ a along its rows, b along its columns.
.balign 4
.global fairtier_tiles_outer
.type fairtier_tiles_outer, %function
.thumb_func
fairtier_tiles_outer:
    FT_BEGIN
    lsrs r11, r10, #2
    beq 2f
1:
    FT_OUTER_PAIR
    FT_OUTER_PAIR
    subs r11, r11, #1
    bne 1b
2:
    tst r10, #2
    beq 3f
    FT_OUTER_PAIR
3:
    tst r10, #1
    beq 4f
    vldmia r0, {s16-s19}
    vldmia r4, {s24-s27}
    FT_SIXTEEN s16, s17, s18, s19, s24, s25, s26, s27
4:
    FT_END
@ One sum: a, stride, b, stride; k is on the stack.
.balign 4
.global fairtier_dot
.type fairtier_dot, %function
.thumb_func
fairtier_dot:
    ldr r12, [sp]
    push {r4, lr}
    movs r4, #0
    vmov s0, r4
1:
    vldr s1, [r0]
    add r0, r0, r1
    vldr s2, [r2]
    add r2, r2, r3
    vfma.f32 s0, s1, s2
    subs r12, r12, #1
    bne 1b
    pop {r4, pc}
@ values, fours: below zero becomes zero; NaN is not below.
.balign 4
.global fairtier_relu
.type fairtier_relu, %function
.thumb_func
fairtier_relu:
    movs r2, #0
    vmov s8, r2
1:
    vldmia r0, {s0-s3}
    vcmp.f32 s0, #0.0
    vmrs APSR_nzcv, fpscr
    it mi
    vmovmi.f32 s0, s8
    vcmp.f32 s1, #0.0
    vmrs APSR_nzcv, fpscr
    it mi
    vmovmi.f32 s1, s8
    vcmp.f32 s2, #0.0
    vmrs APSR_nzcv, fpscr
    it mi
    vmovmi.f32 s2, s8
    vcmp.f32 s3, #0.0
    vmrs APSR_nzcv, fpscr
    it mi
    vmovmi.f32 s3, s8
    vstmia r0!, {s0-s3}
    subs r1, r1, #1
    bne 1b
    bx lr
@ y, gradient, fours: zero where y is not above zero, or NaN.
.balign 4
.global fairtier_relu_grad
.type fairtier_relu_grad, %function
.thumb_func
fairtier_relu_grad:
    movs r3, #0
    vmov s8, r3
1:
    vldmia r0!, {s0-s3}
    vldmia r1, {s4-s7}
    vcmp.f32 s0, #0.0
    vmrs APSR_nzcv, fpscr
    it le
    vmovle.f32 s4, s8
    vcmp.f32 s1, #0.0
    vmrs APSR_nzcv, fpscr
    it le
    vmovle.f32 s5, s8
    vcmp.f32 s2, #0.0
    vmrs APSR_nzcv, fpscr
    it le
    vmovle.f32 s6, s8
    vcmp.f32 s3, #0.0
    vmrs APSR_nzcv, fpscr
    it le
    vmovle.f32 s7, s8
    vstmia r1!, {s4-s7}
    subs r2, r2, #1
    bne 1b
    bx lr
@ rows, stride, count, sums; the factor is s0. Four columns from above to below.
.balign 4
.global fairtier_column_sums
.type fairtier_column_sums, %function
.thumb_func
fairtier_column_sums:
    mov r12, #0
    vmov s4, r12
    vmov.f32 s5, s4
    vmov.f32 s6, s4
    vmov.f32 s7, s4
1:
    vldmia r0, {s8-s11}
    add r0, r0, r1
    vadd.f32 s4, s4, s8
    vadd.f32 s5, s5, s9
    vadd.f32 s6, s6, s10
    vadd.f32 s7, s7, s11
    subs r2, r2, #1
    bne 1b
    vldmia r3, {s8-s11}
    vmla.f32 s8, s4, s0
    vmla.f32 s9, s5, s0
    vmla.f32 s10, s6, s0
    vmla.f32 s11, s7, s0
    vstmia r3, {s8-s11}
    bx lr
@ Convolutions: one tile (16 sums) or strip (4 sums) over three nested loops; r0 is the walk, r1 the place for the sums.
@ r0-r3 move along a, r4-r7 along b.
@ A section of its own, so that boards without convolutions do not carry it.
.section .text.fairtier_conv,"ax",%progbits
@ Moves the pointers at the end of a loop by the distances at two offsets of the walk.
.macro FT_MOVE_TILE a, b
    ldr r10, [r12, #\a]
    add r0, r0, r10
    add r1, r1, r10
    add r2, r2, r10
    add r3, r3, r10
    ldr r10, [r12, #\b]
    add r4, r4, r10
    add r5, r5, r10
    add r6, r6, r10
    add r7, r7, r10
.endm
.macro FT_MOVE_STRIP a, b
    ldr r10, [r12, #\a]
    add r0, r0, r10
    add r1, r1, r10
    add r2, r2, r10
    add r3, r3, r10
    ldr r10, [r12, #\b]
    add r4, r4, r10
.endm
@ One term, with steps of any length, and of one number.
.macro FT_TILE_ANY
    vldr s16, [r0]
    add r0, r0, r8
    vldr s17, [r1]
    add r1, r1, r8
    vldr s18, [r2]
    add r2, r2, r8
    vldr s19, [r3]
    add r3, r3, r8
    vldr s20, [r4]
    add r4, r4, r9
    vldr s21, [r5]
    add r5, r5, r9
    vldr s22, [r6]
    add r6, r6, r9
    vldr s23, [r7]
    add r7, r7, r9
    FT_SIXTEEN s16, s17, s18, s19, s20, s21, s22, s23
.endm
.macro FT_TILE_UNIT
    vldmia r0!, {s16}
    vldmia r1!, {s17}
    vldmia r2!, {s18}
    vldmia r3!, {s19}
    vldmia r4!, {s20}
    vldmia r5!, {s21}
    vldmia r6!, {s22}
    vldmia r7!, {s23}
    FT_SIXTEEN s16, s17, s18, s19, s20, s21, s22, s23
.endm
.macro FT_STRIP_ANY
    vldr s4, [r0]
    add r0, r0, r8
    vldr s5, [r1]
    add r1, r1, r8
    vldr s6, [r2]
    add r2, r2, r8
    vldr s7, [r3]
    add r3, r3, r8
    vldr s8, [r4]
    add r4, r4, r9
    vfma.f32 s0, s4, s8
    vfma.f32 s1, s5, s8
    vfma.f32 s2, s6, s8
    vfma.f32 s3, s7, s8
.endm
.macro FT_STRIP_UNIT
    vldmia r0!, {s4}
    vldmia r1!, {s5}
    vldmia r2!, {s6}
    vldmia r3!, {s7}
    vldmia r4!, {s8}
    vfma.f32 s0, s4, s8
    vfma.f32 s1, s5, s8
    vfma.f32 s2, s6, s8
    vfma.f32 s3, s7, s8
.endm
@ The three loops around a term. Every loop has at least one turn.
.macro FT_WALK term, move
    ldr lr, [r12, #64]
1:
    ldr r11, [r12, #52]
2:
    ldr r10, [r12, #40]
3:
    \term
    subs r10, r10, #1
    bne 3b
    \move 44, 48
    subs r11, r11, #1
    bne 2b
    \move 56, 60
    subs lr, lr, #1
    bne 1b
.endm
.balign 4
.global fairtier_conv_tile
.type fairtier_conv_tile, %function
.thumb_func
fairtier_conv_tile:
    push {r1, r4-r11, lr}
    vpush {s16-s23}
    mov r12, r0
    movs r1, #0
    vmov d0, r1, r1
    vmov d1, r1, r1
    vmov d2, r1, r1
    vmov d3, r1, r1
    vmov d4, r1, r1
    vmov d5, r1, r1
    vmov d6, r1, r1
    vmov d7, r1, r1
    ldm r12, {r0-r9}
    cmp r8, #4
    it eq
    cmpeq r9, #4
    beq 5f
    FT_WALK FT_TILE_ANY, FT_MOVE_TILE
    b 6f
5:
    FT_WALK FT_TILE_UNIT, FT_MOVE_TILE
6:
    vpop {s16-s23}
    pop {r0, r4-r11, lr}
    vstmia r0, {s0-s15}
    bx lr
.balign 4
.global fairtier_conv_strip
.type fairtier_conv_strip, %function
.thumb_func
fairtier_conv_strip:
    push {r1, r4-r11, lr}
    mov r12, r0
    movs r1, #0
    vmov d0, r1, r1
    vmov d1, r1, r1
    ldm r12, {r0-r9}
    cmp r8, #4
    it eq
    cmpeq r9, #4
    beq 5f
    FT_WALK FT_STRIP_ANY, FT_MOVE_STRIP
    b 6f
5:
    FT_WALK FT_STRIP_UNIT, FT_MOVE_STRIP
6:
    pop {r0, r4-r11, lr}
    vstmia r0, {s0-s3}
    bx lr
.purgem FT_MOVE_TILE
.purgem FT_MOVE_STRIP
.purgem FT_TILE_ANY
.purgem FT_TILE_UNIT
.purgem FT_STRIP_ANY
.purgem FT_STRIP_UNIT
.purgem FT_WALK
.purgem FT_SIXTEEN
.purgem FT_DOTS_PAIR
.purgem FT_ROWS_PAIR
.purgem FT_OUTER_PAIR
.purgem FT_BEGIN
.purgem FT_ADD_ROW
.purgem FT_END
